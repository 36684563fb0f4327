"""What a function means, in float64, and how far from it a result may be."""
