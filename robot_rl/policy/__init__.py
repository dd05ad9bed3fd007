"""The policy on the robot, and the pretrained policies that it builds on."""
