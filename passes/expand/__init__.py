"""What macro-operations do, as loads, stores, barriers and arithmetic."""
