"""The service on a virtual clock: the planner's own code, simulated engines, no processes."""
