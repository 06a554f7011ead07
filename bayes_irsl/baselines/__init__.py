"""What people use today, implemented fairly: point estimates without a posterior."""
