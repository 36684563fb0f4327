"""Pictures: SVG of shapes, of what lanes hold, and the colours of both."""
