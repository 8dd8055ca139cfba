"""What is noticed from outside a worker: lost workers, due timers, lost bells, broken promises."""
