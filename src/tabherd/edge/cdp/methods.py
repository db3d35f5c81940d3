"""Every method of the protocol that is known here, and what it reaches.

A method stands in exactly one table for the sessions of pages and frames. In those of workers, of tabs and of the
browser only what their own tables name besides is allowed. A test compares all of this with the protocol of the
installed browsers, so that a method which a new version brings is looked at before it is let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


def _methods(names_by_domain: Mapping[str, str]) -> frozenset[str]:
    return frozenset(f"{domain}.{name}" for domain, names in names_by_domain.items() for name in names.split())


# tabherd answers these in every session: Chromium's answers are about every tenant.
EMULATED: Final = _methods(
    {"Target": "setDiscoverTargets getTargets getBrowserContexts getDevToolsTarget", "Browser": "close"},
)

# Their parameters decide; `checks` has a function for each.
CHECKED: Final = _methods(
    {
        "Target": """
            activateTarget attachToTarget closeTarget createBrowserContext createTarget detachFromTarget
            disposeBrowserContext getTargetInfo setAutoAttach
        """,
        "Browser": """
            cancelDownload getWindowBounds getWindowForTarget grantPermissions resetPermissions setContentsSize
            setDownloadBehavior setPermission setWindowBounds
        """,
        "Storage": "clearCookies getCookies setCookies",
        "Page": "crash navigate setDownloadBehavior",
        "Fetch": "continueRequest",
        "DOM": "setFileInputFiles",
        "Input": "dispatchDragEvent",
    }
)
# Checked too, for what they would do to other tenants: one who has the browser alone may do it.
CHECKED_FOR_OTHERS: Final = _methods(
    {
        # The clipboard is one for the whole browser. A composition at some places ends the browser's process,
        "Input": "dispatchKeyEvent imeSetComposition",
        # as do these with some values.
        "Emulation": "setDisplayFeaturesOverride",
        "Storage": "overrideQuotaForOrigin",
        # Bodies may be kept in a process that all share.
        "Network": "configureDurableMessages enable",
    }
)
# Checked where the middle button pastes what any tenant has selected.
CHECKED_FOR_SELECTION: Final = _methods({"Input": "dispatchMouseEvent emulateTouchFromMouseEvent"})
# Who has the browser alone may, but not with every parameter. A resource is kept whole in the browser's own process,
# which ends with everybody in it at a gigabyte.
CHECKED_ALONE: Final = _methods({"Network": "loadNetworkResource", "Tracing": "start"})

# Fine in the session of a page; in that of a frame they end the browser's whole process.
FATAL_IN_FRAMES: Final = _methods(
    {
        "Emulation": "setDisplayFeaturesOverride",
        # As soon as the page is scaled.
        "Input": "synthesizePinchGesture synthesizeScrollGesture synthesizeTapGesture",
    }
)

# Contexts are the boundary here; where tenants share one, these would change it for all of them.
OF_CONTEXTS: Final = _methods(
    {
        "Target": "createBrowserContext disposeBrowserContext",
        "Browser": "cancelDownload grantPermissions resetPermissions setDownloadBehavior setPermission",
        "Page": "setDownloadBehavior",
    }
)

# Whole domains of that sort: they tell of all workers of the context and the pages that these control, and stop them.
OF_CONTEXTS_DOMAINS: Final = frozenset({"BackgroundService", "ServiceWorker"})

# They reach every tenant, or spend what all share; only for one who has the browser alone.
OF_BROWSER: Final = _methods(
    {
        # The screens are one set for the whole browser.
        "Emulation": "addScreen removeScreen setPrimaryScreen updateScreen",
        # It is kept whole in the browser's own process, as a resource is that is loaded.
        "Fetch": "getResponseBody",
        # It is kept in a file of the browser's that nothing bounds.
        "Page": "startScreenRecording stopScreenRecording",
        "Tracing": "end getCategories getTrackEventDescriptor recordClockSyncMarker requestMemoryDump",
    }
)
# Whole domains of that sort.
OF_BROWSER_DOMAINS: Final = frozenset({"BluetoothEmulation"})

# Never: other tenants, the machine, or the browser's own life.
DENIED: Final = _methods(
    {
        "Target": """
            autoAttachRelated exposeDevToolsProtocol openDevTools sendMessageToTarget
            setRemoteLocations
        """,
        "Browser": """
            addMockCamera addPrivacySandboxEnrollmentOverride crash crashGpuProcess executeBrowserCommand
            getBrowserCommandLine getGlobalPrivacyControl getHistogram getHistograms setDockTile
            setGlobalPrivacyControl
        """,
        "Memory": """
            getAllTimeSamplingProfile getBrowserSamplingProfile getSamplingProfile setPressureNotificationsSuppressed
            simulatePressureNotification startSampling stopSampling
        """,
        # Older browsers have these: the first takes files, the others addresses.
        "Page": "handleFileChooser",
        "Network": "continueInterceptedRequest setRequestInterception",
    }
)
# Whole domains of that sort: devices, applications, extensions and ports of the machine, and facts about it.
DENIED_DOMAINS: Final = frozenset(
    {"Cast", "DeviceAccess", "Extensions", "PWA", "SmartCardEmulation", "SystemInfo", "Tethering"}
)
# Here a method that is not known is denied also in the sessions of pages: the domain is about the whole browser.
GUARDED_DOMAINS: Final = frozenset({"Browser", "IO", "Memory", "Security", "Storage", "Target", "Tracing"})

# They stay within the session's target and its context.
PASSED: Final = _methods(
    {
        "Target": "attachToBrowserTarget",
        "Browser": "getVersion",
        "Accessibility": """
            disable enable getAXNodeAndAncestors getChildAXNodes getFullAXTree getPartialAXTree getRootAXNode
            queryAXTree
        """,
        "Ads": "getAdMetrics getAdScripts",
        "Animation": """
            disable enable getCurrentTime getPlaybackRate releaseAnimations resolveAnimation seekAnimations
            setPaused setPlaybackRate setTiming
        """,
        "Audits": "checkFormsIssues disable enable getEncodedResponse",
        "Autofill": "disable enable setAddresses trigger",
        "BackgroundService": "clearEvents setRecording startObserving stopObserving",
        "CSS": """
            addRule collectClassNames createStyleSheet disable enable forcePseudoState forceStartingStyle
            getAnimatedStylesForNode getBackgroundColors getComputedStyleForNode getEnvironmentVariables
            getInlineStylesForNode getLayersForNode getLocationForSelector getLonghandProperties
            getMatchedStylesForNode getMediaQueries getPlatformFontsForNode getStyleSheetText resolveValues
            setContainerQueryConditionText setContainerQueryText setEffectivePropertyValueForNode setKeyframeKey
            setLocalFontsEnabled setMediaText setNavigationText setPropertyRulePropertyName setRuleSelector
            setScopeText setStyleSheetText setStyleTexts setSupportsText startRuleUsageTracking
            stopRuleUsageTracking takeComputedStyleUpdates takeCoverageDelta trackComputedStyleUpdates
            trackComputedStyleUpdatesForNode
        """,
        "CacheStorage": "deleteCache deleteEntry requestCacheNames requestCachedResponse requestEntries",
        "Console": "clearMessages disable enable",
        "CrashReportContext": "getEntries",
        "DOM": """
            clearTextMarkers collectClassNamesFromSubtree copyTo describeNode disable discardSearchResults enable
            focus forceShowInterest forceShowPopover getAnchorElement getAttributes getBoxModel getContainerForNode
            getContentQuads getDetachedDomNodes getDocument getElementByRelation getFileInfo getFlattenedDocument
            getFrameOwner getImplicitAnchorCandidates getNodeForLocation getNodeStackTraces
            getNodesForSubtreeByStyle getOuterHTML getQueryingDescendantsForContainer getRelayoutBoundary
            getSearchResults getTopLayerElements hideHighlight highlightNode highlightRect markUndoableState moveTo
            performSearch pushNodeByPathToFrontend pushNodesByBackendIdsToFrontend querySelector querySelectorAll
            redo removeAttribute removeNode requestChildNodes requestNode resolveNode scrollIntoViewIfNeeded
            setAttributeValue setAttributesAsText setInspectedNode setNodeName setNodeStackTracesEnabled
            setNodeValue setOuterHTML setTextMarker undo
        """,
        "DOMDebugger": """
            getEventListeners removeDOMBreakpoint removeEventListenerBreakpoint removeInstrumentationBreakpoint
            removeXHRBreakpoint setBreakOnCSPViolation setDOMBreakpoint setEventListenerBreakpoint
            setInstrumentationBreakpoint setXHRBreakpoint
        """,
        "DOMSnapshot": "captureSnapshot disable enable getSnapshot",
        "DOMStorage": "clear disable enable getDOMStorageItems removeDOMStorageItem setDOMStorageItem",
        "Debugger": """
            continueToLocation disable disassembleWasmModule enable evaluateOnCallFrame getPossibleBreakpoints
            getScriptSource getStackTrace getWasmBytecode nextWasmDisassemblyChunk pause pauseOnAsyncCall
            removeBreakpoint restartFrame resume searchInContent setAsyncCallStackDepth setBlackboxExecutionContexts
            setBlackboxPatterns setBlackboxedRanges setBreakpoint setBreakpointByUrl setBreakpointOnFunctionCall
            setBreakpointsActive setInstrumentationBreakpoint setPauseOnExceptions setReturnValue setScriptSource
            setSkipAllPauses setVariableValue stepInto stepOut stepOver
        """,
        "DeviceOrientation": "clearDeviceOrientationOverride setDeviceOrientationOverride",
        "DigitalCredentials": "setVirtualWalletBehavior",
        "Emulation": """
            canEmulate clearDeviceMetricsOverride clearDevicePostureOverride clearDisplayFeaturesOverride
            clearGeolocationOverride clearIdleOverride getOverriddenSensorInformation getScreenInfos
            resetPageScaleFactor setAutoDarkModeOverride setAutomationOverride setCPUPerformanceOverride
            setCPUThrottlingRate setDataSaverOverride setDefaultBackgroundColorOverride setDeviceMetricsOverride
            setDevicePostureOverride setDisabledImageTypes setDocumentCookieDisabled setEmitTouchEventsForMouse
            setEmulatedMedia setEmulatedOSTextScale setEmulatedVisionDeficiency setFocusEmulationEnabled
            setGeolocationOverride setHardwareConcurrencyOverride setIdleOverride setLocaleOverride
            setNavigatorOverrides setPageScaleFactor setPressureSourceOverrideEnabled setPressureStateOverride
            setSafeAreaInsetsOverride setScriptExecutionDisabled setScrollbarsHidden setSensorOverrideEnabled
            setSensorOverrideReadings setSmallViewportHeightDifferenceOverride setTimezoneOverride
            setTouchEmulationEnabled setUserAgentOverride setVirtualKeyboardGeometryOverride setVirtualTimePolicy
            setVisibleSize
        """,
        "EventBreakpoints": "disable removeInstrumentationBreakpoint setInstrumentationBreakpoint",
        "FedCm": "clickDialogButton disable dismissDialog enable openUrl resetCooldown selectAccount",
        "Fetch": """
            continueResponse continueWithAuth disable enable failRequest fulfillRequest takeResponseBodyAsStream
        """,
        "FileSystem": "getDirectory",
        "FindInPage": "findFirst findNext findPrev stop",
        "HeadlessExperimental": "beginFrame disable enable",
        "HeapProfiler": """
            addInspectedHeapObject collectGarbage disable enable getHeapObjectId getObjectByHeapObjectId
            getSamplingProfile startSampling startTrackingHeapObjects stopSampling stopTrackingHeapObjects
            takeHeapSnapshot
        """,
        "IO": "close read resolveBlob",
        "IndexedDB": """
            clearObjectStore deleteDatabase deleteObjectStoreEntries disable enable getMetadata requestData
            requestDatabase requestDatabaseNames
        """,
        "Input": """
            cancelDragging dispatchTouchEvent insertText setIgnoreInputEvents setInterceptDrags
            synthesizePinchGesture synthesizeScrollGesture synthesizeTapGesture
        """,
        "Inspector": "disable enable",
        "LayerTree": """
            compositingReasons disable enable loadSnapshot makeSnapshot profileSnapshot releaseSnapshot
            replaySnapshot snapshotCommandLog
        """,
        "Log": "clear disable enable startViolationsReport stopViolationsReport",
        "Media": "disable enable",
        "Memory": "forciblyPurgeJavaScriptMemory getDOMCounters getDOMCountersForLeakDetection prepareForLeakDetection",
        "Network": """
            canClearBrowserCache canClearBrowserCookies canEmulateNetworkConditions clearBrowserCache
            clearBrowserCookies deleteCookies deleteDeviceBoundSession disable emulateNetworkConditions
            emulateNetworkConditionsByRule enableDeviceBoundSessions enableReportingApi fetchSchemefulSite
            getAllCookies getCertificate getCookies getRequestPostData getResponseBody getSecurityIsolationStatus
            overrideNetworkState replayXHR searchInResponseBody setAttachDebugStack setBlockedURLs
            setBypassServiceWorker setCacheDisabled setCookie setCookieControls setCookies setExtraHTTPHeaders
            setUserAgentOverride streamResourceContent
        """,
        "Overlay": """
            disable enable getGridHighlightObjectsForTest getHighlightObjectForTest
            getSourceOrderHighlightObjectForTest hideHighlight highlightFrame highlightNode highlightQuad
            highlightRect highlightSourceOrder setInspectMode setPausedInDebuggerMessage setShowAdHighlights
            setShowContainerQueryOverlays setShowDebugBorders setShowDisplayCutout setShowFPSCounter
            setShowFlexOverlays setShowGridOverlays setShowHinge setShowHitTestBorders setShowInspectedElementAnchor
            setShowIsolatedElements setShowLayoutShiftRegions setShowPaintRects setShowScrollBottleneckRects
            setShowScrollSnapOverlays setShowViewportSizeOnResize setShowWebVitals setShowWindowControlsOverlay
        """,
        "Page": """
            addCompilationCache addScriptToEvaluateOnLoad addScriptToEvaluateOnNewDocument bringToFront
            captureScreenshot captureSnapshot clearCompilationCache clearDeviceMetricsOverride
            clearDeviceOrientationOverride clearGeolocationOverride close createIsolatedWorld deleteCookie disable
            enable generateTestReport getAdScriptAncestry getAnnotatedPageContent getAppId getAppManifest
            getFrameTree getInstallabilityErrors getLayoutMetrics getManifestIcons getNavigationHistory
            getOriginTrials getPermissionsPolicyState getResourceContent getResourceTree getSiblingSubApps
            getSubApps handleJavaScriptDialog navigateToHistoryEntry printToPDF produceCompilationCache reload
            removeScriptToEvaluateOnLoad removeScriptToEvaluateOnNewDocument resetNavigationHistory
            screencastFrameAck searchInResource setAdBlockingEnabled setBypassCSP setDeviceMetricsOverride
            setDeviceOrientationOverride setDocumentContent setFontFamilies setFontSizes setGeolocationOverride
            setInterceptFileChooserDialog setLifecycleEventsEnabled setPrerenderingAllowed setRPHRegistrationMode
            setSPCTransactionMode setTouchEmulationEnabled setWebLifecycleState startScreencast stopLoading
            stopScreencast waitForDebugger
        """,
        "Performance": "disable enable getMetrics setTimeDomain",
        "PerformanceTimeline": "enable",
        "Preload": "disable enable",
        "Profiler": """
            disable enable getBestEffortCoverage setSamplingInterval start startPreciseCoverage stop
            stopPreciseCoverage takePreciseCoverage
        """,
        "Runtime": """
            addBinding awaitPromise callFunctionOn compileScript disable discardConsoleEntries enable evaluate
            getExceptionDetails getHeapUsage getIsolateId getProperties globalLexicalScopeNames queryObjects
            releaseObject releaseObjectGroup removeBinding runIfWaitingForDebugger runScript setAsyncCallStackDepth
            setCustomObjectFormatterEnabled setMaxCallStackSizeToCapture terminateExecution
        """,
        "Schema": "getDomains",
        "Security": "disable enable handleCertificateError setIgnoreCertificateErrors setOverrideCertificateErrors",
        "ServiceWorker": """
            deliverPushMessage disable dispatchPeriodicSyncEvent dispatchSyncEvent enable setForceUpdateOnPageLoad
            skipWaiting startWorker stopAllWorkers stopWorker unregister updateRegistration
        """,
        "Storage": """
            clearDataForOrigin clearDataForStorageKey clearPrivateVerificationTokens clearTrustTokens
            deletePrivateVerificationToken deleteStorageBucket getPrivateVerificationTokens
            getPrivateVerificationTokensIssuerConfigs getStorageKey getStorageKeyForFrame getTrustTokens
            getUsageAndQuota runBounceTrackingMitigations setPrivateVerificationTokensTracking
            setStorageBucketTracking trackCacheStorageForOrigin trackCacheStorageForStorageKey
            trackIndexedDBForOrigin trackIndexedDBForStorageKey untrackCacheStorageForOrigin
            untrackCacheStorageForStorageKey untrackIndexedDBForOrigin untrackIndexedDBForStorageKey
        """,
        "WebAudio": "disable enable getRealtimeData",
        "WebAuthn": """
            addCredential addVirtualAuthenticator clearCredentials disable enable getCredential getCredentials
            removeCredential removeVirtualAuthenticator setAutomaticPresenceSimulation setCredentialProperties
            setResponseOverrideBits setUserVerified
        """,
        "WebMCP": "cancelInvocation disable enable invokeTool",
    }
)

# All that a session of a worker may do: what debuggers and the usual clients need there. Chromium was made for little
# more, and ends with everybody in it after some of the rest: cookies, or the watching of storage.
_OF_WORKER_DOMAINS: Final = (
    *("Console", "Debugger", "EventBreakpoints", "Fetch", "HeapProfiler", "IO"),
    *("Inspector", "Log", "Media", "Profiler", "Runtime", "Schema"),
)
OF_WORKER: Final = frozenset(name for name in PASSED if name.partition(".")[0] in _OF_WORKER_DOMAINS) | _methods(
    {
        "Target": "detachFromTarget getTargetInfo setAutoAttach",
        "Browser": "getVersion",
        "Emulation": """
            setHardwareConcurrencyOverride setLocaleOverride setNavigatorOverrides setTimezoneOverride
            setUserAgentOverride
        """,
        "Fetch": "continueRequest getResponseBody",
        "Network": """
            configureDurableMessages disable emulateNetworkConditions emulateNetworkConditionsByRule enable
            getRequestPostData getResponseBody loadNetworkResource overrideNetworkState searchInResponseBody
            setAttachDebugStack setBlockedURLs setBypassServiceWorker setCacheDisabled setExtraHTTPHeaders
            setUserAgentOverride streamResourceContent
        """,
    }
)
# Without what ends the browser when the worker has been stopped, or its process has ended, and nobody can know that in
# time.
OF_SERVICE_WORKER: Final = OF_WORKER - _methods({"Network": "getResponseBody loadNetworkResource"})

# What else a session of a tab may do, and one with a browser's powers.
_WITHIN: Final = _methods(
    {
        "Target": """
            activateTarget attachToTarget closeTarget createBrowserContext createTarget detachFromTarget
            disposeBrowserContext getTargetInfo setAutoAttach attachToBrowserTarget
        """,
        "Browser": "getVersion getWindowBounds getWindowForTarget setContentsSize setWindowBounds",
        "IO": "close read",
        "Runtime": "runIfWaitingForDebugger",
    }
)
OF_TAB: Final = _WITHIN
OF_ROOT: Final = _WITHIN | _methods(
    {
        "Browser": "cancelDownload grantPermissions resetPermissions setDownloadBehavior setPermission",
        "Storage": "clearCookies getCookies setCookies",
    }
)
# tabherd answers these in place of the browser.
EMULATED_AT_ROOT: Final = frozenset({"Target.setAutoAttach", "Security.setIgnoreCertificateErrors"})

# They end a wait of the page, or let go of something: they pass also while another controller holds the tab.
ANSWERS: Final = _methods(
    {
        "Fetch": "continueRequest continueResponse continueWithAuth failRequest fulfillRequest",
        "Page": "handleJavaScriptDialog",
        "Runtime": "releaseObject releaseObjectGroup runIfWaitingForDebugger",
        "Debugger": "resume",
        "Target": "detachFromTarget",
    }
)
# As do these, in every domain.
ANSWER_ENDINGS: Final = (".enable", ".disable")
