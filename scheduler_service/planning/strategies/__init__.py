"""Batching strategies: values of one small interface."""
