
1 row1, nanoseconds per 256 weights

| type |
8 row8, nanoseconds per 256 weights

| type |