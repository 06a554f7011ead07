"""What subjects that nobody has evaluated will score, what to choose, and how well such forecasts have held."""
