"""Leadership of partitions: the view of the cluster, the controller, and the led partitions."""
