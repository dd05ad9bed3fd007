"""What a person sees of a run: terminal dashboard while it learns, report.html afterwards."""
