"""Operator ports: the scripted operator; keyboard, gamepad and console plug in here."""
