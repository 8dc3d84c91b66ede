"""What tests of jobs stand on."""
