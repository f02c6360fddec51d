"""The hybrid model (BLENDER): blend a trusted curator's estimates with those from randomised client reports."""
