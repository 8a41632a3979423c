"""What tests share, imported by its full name; ranks import it too, so nothing stands here."""
