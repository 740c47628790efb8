"""One replica under load in closed form: step times over the batch, occupancy, queueing, percentiles."""
