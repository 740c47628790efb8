"""Questions about one deployment, one model or one set of measurements: their JSON documents and texts."""
