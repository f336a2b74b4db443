from tests.random_topologies.campaign import main

raise SystemExit(main())
