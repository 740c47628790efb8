"""What one replica serves: aggregated, or prefill and decode apart."""
