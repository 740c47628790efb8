"""Where nothing serves, or not within the limits: what is missing, and which changes would close the gap."""
