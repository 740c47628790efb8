"""What work: FLOPs and bytes of one device in one step. Knows no hardware."""
