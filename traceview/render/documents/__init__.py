"""What each kind of answer shows, in reading order, for any format to lay out."""
