"""Whether a changed row can matter to a view (section 3 of Chao, Diehr and Saharia): proofs by satisfiability."""
