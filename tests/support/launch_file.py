"""What `ros2 launch FILE name:=value ...` does, for where ros2cli is not installed."""

import sys

from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import AnyLaunchDescriptionSource

if __name__ == "__main__":
    file, *words = sys.argv[1:]
    given = [tuple(word.split(":=", 1)) for word in words]
    source = AnyLaunchDescriptionSource(file)
    service = LaunchService(argv=words)
    service.include_launch_description(
        LaunchDescription([IncludeLaunchDescription(source, launch_arguments=given)])
    )
    sys.exit(service.run())
