"""Bundle adjustment from lines: Levenberg-Marquardt on the Schur complement."""
