"""Who leads which partition: the view of the cluster, the controller, and what a broker holds."""
