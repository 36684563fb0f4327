"""From a scheduled product to a kernel over warp fragments."""
