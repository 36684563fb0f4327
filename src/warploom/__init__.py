"""The package `warploom`. Its three packages are links to the folders of the checkout, so that every tool that knows
Python finds them: an installer, an editor, a type checker."""
