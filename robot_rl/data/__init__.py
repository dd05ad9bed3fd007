"""Data in and out: LeRobotDataset v3 both ways, MCAP with ROS 2 messages, Rerun."""
