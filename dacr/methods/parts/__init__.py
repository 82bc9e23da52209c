"""What methods are made of: representations, classifiers, and the method that joins the two."""
