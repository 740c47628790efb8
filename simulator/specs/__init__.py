"""What is given: hardware, models, precision, deployments, engines, workloads, objectives, prices, calibrations."""
