"""Real drivers that have no ROS node of their own: gamepad, SpaceMouse. Libraries load on use."""
