"""A worker without a model: the same contract, time from a cost model, no torch."""
