"""Which deployments compete: candidates, screening of thousands, evaluation of the best."""
