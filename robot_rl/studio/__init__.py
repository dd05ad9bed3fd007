"""The studio: one page over a folder of runs. See, compare, start, finish and put away runs."""
