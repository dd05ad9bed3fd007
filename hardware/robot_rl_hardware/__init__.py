"""Real drivers that have no ROS node of their own."""
