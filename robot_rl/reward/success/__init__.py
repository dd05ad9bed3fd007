"""Success from pictures: the model, how it is trained, and what deceives it."""
