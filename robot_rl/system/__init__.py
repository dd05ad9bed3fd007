"""What the operating system gives: files that are on the disk, clocks, priorities, supervision."""
