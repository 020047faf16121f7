"""A proof in an account of AWS: small tasks whose usage is known, and what arrives of them."""
