"""Which batching strategy, with which settings, suits a workload: searched in the offline simulator."""
