"""Files that studies and trainings read and write."""
