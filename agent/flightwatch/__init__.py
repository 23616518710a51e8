"""flightwatch in a training process: record every step, never get in its way."""
