"""The drill `clocks`: every clock with every policy in every phase, on a clock that the drill moves by hand."""
