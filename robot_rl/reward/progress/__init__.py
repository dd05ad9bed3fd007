"""Progress towards the goal, frame by frame: models, their training, and a critic's view."""
