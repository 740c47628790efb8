"""Demand as somebody recorded it: request traces, server metrics, results of benchmark tools."""
