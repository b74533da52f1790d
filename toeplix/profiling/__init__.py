"""FLOPs, memory and time: counted by formula (counting), planned (plan), measured (timing, bench)."""
