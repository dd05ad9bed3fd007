"""What tests share: stand-ins, rows, worlds."""
