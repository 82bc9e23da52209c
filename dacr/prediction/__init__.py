"""What a trained run says about images that it never saw."""
